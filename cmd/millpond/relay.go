package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/millpond-go/millpond/router"
)

func (p *program) relayCommand() *cobra.Command {
	var path string
	cmd := explained(&cobra.Command{
		Use:   "relay [file]",
		Short: "Run a relay, which publishes what is in the outbox",
		Long: `Run a relay, which publishes what is in the outbox, until the process gets SIGTERM or SIGINT.

It reads the configuration of a service and uses the broker, the destinations, the store, and the
sections relay, log and http; relay.on need not be set. Messages without a destination go to the
broker. Messages for destinations that only a program has, and messages that a codec has encoded,
need a relay in that program. Any number of relays share the work, those of services included.

The default file is ` + defaultConfig + `, if it exists; MILLPOND_* variables override it.`,
		Example: `  millpond relay --config orders.yaml
  MILLPOND_STORE_URL=postgres://app@db/orders MILLPOND_BROKER_URL=kafka://broker:9092 MILLPOND_SERVICE=orders millpond relay`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				path = args[0]
			} else if _, err := os.Stat(defaultConfig); err == nil && path == "" {
				path = defaultConfig
			}
			c, err := router.LoadConfig(path)
			if err != nil {
				return err
			}
			c.Relay.On, c.Handlers, c.Telemetry.On = true, nil, false
			c.Program.NoSignals = true // main handles them
			service, err := router.New(cmd.Context(), c)
			if err != nil {
				return err
			}
			return service.Run(cmd.Context())
		},
	}, nil, exits{exitOK: "stopped by a signal; what it has published is recorded"})
	cmd.Flags().StringVar(&path, "config", "", "the configuration `file`; the same as the argument")
	return cmd
}
