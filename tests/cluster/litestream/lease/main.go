// A contender that is litestream's lease on S3 (its package s3), and nothing else: the peer that make bench measures beside Lunarch.
// No command of litestream's uses that lease, and the package has no loop of its own: so this one looks as often as Lunarch, every 2 s.
// lease ENDPOINT BUCKET PATH: says "leading" when it has the lease; on SIGTERM it releases it and ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/benbjohnson/litestream"
	"github.com/benbjohnson/litestream/s3"
)

const period = 2 * time.Second

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func leaser(endpoint, bucket, path string) *s3.Leaser {
	settings, err := config.LoadDefaultConfig(context.Background(), config.WithRegion("us-east-1"))
	must(err)
	l := s3.NewLeaser()
	l.SetClient(awss3.NewFromConfig(settings, func(o *awss3.Options) {
		o.BaseEndpoint = aws.String(endpoint)
		o.UsePathStyle = true
	}))
	l.Bucket, l.Path, l.TTL = bucket, path, 15*time.Second
	return l
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: lease ENDPOINT BUCKET PATH")
		os.Exit(2)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	l, ctx := leaser(os.Args[1], os.Args[2], os.Args[3]), context.Background()
	var lease *litestream.Lease
	for {
		var held *litestream.LeaseExistsError
		var err error
		if lease == nil {
			if lease, err = l.AcquireLease(ctx); err == nil {
				fmt.Println("leading")
			} else if !errors.As(err, &held) {
				must(err)
			}
		} else {
			lease, err = l.RenewLease(ctx, lease)
			must(err)
		}
		select {
		case <-signals:
			if lease != nil {
				must(l.ReleaseLease(ctx, lease))
			}
			return
		case <-time.After(period):
		}
	}
}
