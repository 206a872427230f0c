// A leader of make compare that is Election of etcd's Go client.
// https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency: Campaign waits until this one is elected, Resign lets others start. The end of
// a leadership that is not resigned is the end of its session: Session.Done "returns a channel that closes when the lease is orphaned".
// etcdelection ENDPOINT PREFIX DIR NAME obedient|busy [COMMAND...]
package main

import (
	"context"
	"log"
	"os"
	"time"

	"lunarch.dev/tests/cluster/compare/peers/work"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:2], DialTimeout: 5 * time.Second})
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(15))
	must(err)
	election := concurrency.NewElection(session, os.Args[2])
	must(election.Campaign(context.Background(), os.Args[4]))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-session.Done()
		cancel()
	}()
	work.Do(ctx, os.Args[3], os.Args[4], os.Args[5], os.Args[6:])
	must(election.Resign(ctx))
	must(session.Close())
}
