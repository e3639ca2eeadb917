package kafka

import (
	"context"

	"github.com/millpond-go/millpond/internal/testenv/maven"
)

// Version is the version of the broker.
const Version = "4.3.1"

var distribution = maven.Server{
	Name: "kafka", Group: "org.apache.kafka", Artifact: "kafka_2.13", Version: Version,
	Instead: "set " + BrokersVariable + " to the address of a broker, which is enough for all tests that do not kill theirs",
}

// Install makes sure that a broker can be started: it installs Java and Maven where
// they are missing and can be installed, and fetches the broker's jars, once for this
// user. Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, _, err := distribution.Install(ctx)
	return err
}
