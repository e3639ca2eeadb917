// Command server is a NATS server with JetStream for tests. It is a module of its own, so
// that whoever uses millpond does not require the server.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 4222, "port to listen on")
	dir := flag.String("dir", "", "directory for streams")
	sync := flag.Bool("sync", true, "sync each message before it is confirmed")
	user := flag.String("user", "", "the only user that may connect; empty: anybody")
	password := flag.String("password", "", "its password")
	flag.Parse()
	if err := run(&server.Options{
		Host: *host, Port: *port, JetStream: true, StoreDir: *dir, SyncAlways: *sync,
		Username: *user, Password: *password, NoSigs: true,
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(options *server.Options) error {
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return fmt.Errorf("the server does not accept connections")
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
