// Command stint shows and checks the contract of package stint: deadlines,
// retries and load between services. Run "stint help" for what it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/stint-go/stint/cmd/stint/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
