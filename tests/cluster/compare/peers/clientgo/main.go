// A leader of make compare that is client-go's leader election, used as client-go's own example uses it:
// https://github.com/kubernetes/client-go/blob/master/examples/leader-election/main.go: the work is in OnStartedLeading, and
// OnStoppedLeading ends the process. The times are the ones that LeaderElectionConfig's documentation names for core clients.
// clientgo KUBECONFIG NAME-OF-LEASE DIR NAME obedient|busy [COMMAND...]
package main

import (
	"context"
	"os"
	"time"

	"lunarch.dev/tests/cluster/compare/peers/work"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: os.Args[2], Namespace: "default"},
			Client:     kubernetes.NewForConfigOrDie(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: os.Args[4]},
		},
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				work.Do(ctx, os.Args[3], os.Args[4], os.Args[5], os.Args[6:])
				cancel()
			},
			OnStoppedLeading: func() { os.Exit(0) },
		},
	})
}
