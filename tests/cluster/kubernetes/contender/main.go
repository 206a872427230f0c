// A contender that is client-go's own leader election and nothing else: the tests' rival, and the one that must fail where
// Lunarch must not. It prints an event a line on stdout, with CLOCK_MONOTONIC in seconds.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func monotonic() float64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return float64(t.Sec) + float64(t.Nsec)/1e9
}

var speaking sync.Mutex

func say(event, who string) {
	speaking.Lock()
	defer speaking.Unlock()
	line, _ := json.Marshal(map[string]any{"event": event, "who": who, "at": monotonic()})
	fmt.Println(string(line))
}

// Holds what only one may hold while it leads: a file that is there already is said.
func hold(ctx context.Context, path, who string) {
	if path == "" {
		<-ctx.Done()
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		say("held_failed", err.Error())
		return
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		say("overlap", who)
		return
	}
	say("held", who)
	<-ctx.Done()
}

// What a kubeconfig says, as client-go's client would use it: for kubeconfigs.py.
func printConfig(path string) error {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{})
	config, err := loaded.ClientConfig()
	if err != nil {
		return err
	}
	// Plugins and providers are judged when a client is made; the certificates here are none.
	bare := rest.CopyConfig(config)
	bare.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
	if _, err = kubernetes.NewForConfig(bare); err != nil {
		return err
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	found := map[string]any{
		"server": strings.TrimRight(server.String(), "/"), "namespace": namespace, "insecure": config.Insecure,
		"server_name": config.ServerName, "ca_file": config.CAFile, "ca": string(config.CAData),
		"cert_file": config.CertFile, "cert": string(config.CertData), "key_file": config.KeyFile, "key": string(config.KeyData),
		"token": config.BearerToken, "token_file": config.BearerTokenFile, "user": config.Username, "password": config.Password,
		"proxy": "", "command": "", "args": []string{}, "env": []string{},
	}
	if config.BearerTokenFile != "" {
		found["token"] = ""
	}
	if config.Proxy != nil {
		proxy, err := config.Proxy(&http.Request{URL: server})
		if err != nil {
			return err
		}
		found["proxy"] = proxy.String()
	}
	if x := config.ExecProvider; x != nil {
		found["command"], found["args"] = x.Command, append([]string{}, x.Args...)
		env := []string{}
		for _, e := range x.Env {
			env = append(env, e.Name+"="+e.Value)
		}
		found["env"] = env
	}
	line, err := json.Marshal(found)
	fmt.Println(string(line))
	return err
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "")
	namespace := flag.String("namespace", "default", "")
	name := flag.String("name", "", "")
	identity := flag.String("identity", "", "")
	lease := flag.Duration("lease", 15*time.Second, "")
	renew := flag.Duration("renew", 10*time.Second, "")
	retry := flag.Duration("retry", 2*time.Second, "")
	timeout := flag.Duration("timeout", 0, "of a request; 0: as NewFromKubeconfig has it")
	release := flag.Bool("release", true, "")
	again := flag.Bool("again", false, "campaign again after a loss, as its users must")
	held := flag.String("hold", "", "a file that is flocked while leading")
	print := flag.Bool("print", false, "print what the kubeconfig says, and end")
	flag.Parse()

	if *print {
		if err := printConfig(*kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		panic(err)
	}
	config.UserAgent = "client-go-contender"
	lockConfig := resourcelock.ResourceLockConfig{Identity: *identity}
	var lock resourcelock.Interface
	if *timeout > 0 {
		config.Timeout = *timeout
		client := kubernetes.NewForConfigOrDie(config)
		lock, err = resourcelock.New("leases", *namespace, *name, client.CoreV1(), client.CoordinationV1(), lockConfig)
	} else {
		lock, err = resourcelock.NewFromKubeconfig("leases", *namespace, *name, lockConfig, config, *renew)
	}
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel()
	}()
	for {
		var working sync.WaitGroup
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: *lease, RenewDeadline: *renew, RetryPeriod: *retry, ReleaseOnCancel: *release, Name: *name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					working.Add(1)
					defer working.Done()
					say("started", *identity)
					hold(ctx, *held, *identity)
				},
				OnStoppedLeading: func() { say("stopped", *identity) },
				OnNewLeader:      func(id string) { say("new_leader", id) },
			},
		})
		working.Wait()
		if !*again || ctx.Err() != nil {
			return
		}
	}
}
