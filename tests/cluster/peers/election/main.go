// A contender that is etcd's own Go client and its Election, and nothing else: the peer that make bench measures beside Lunarch.
// election ENDPOINT PREFIX: says "leading" when it leads; on SIGTERM it resigns and ends.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: election ENDPOINT PREFIX")
		os.Exit(2)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:2], DialTimeout: 5 * time.Second})
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(15))
	must(err)
	election := concurrency.NewElection(session, os.Args[2])
	must(election.Campaign(context.Background(), fmt.Sprint(os.Getpid())))
	fmt.Println("leading")
	<-signals
	must(election.Resign(context.Background()))
	must(session.Close())
}
