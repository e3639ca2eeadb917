package keys_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/keys"
)

// The id is the producer's own header, unique within a tenant.
func ExampleFirst() {
	chain := keys.First(keys.Metadata("event_id")).Scoped(keys.Tenant("tenant"))

	msg := message.NewMessage("", []byte("two pencils"))
	msg.Metadata.Set("event_id", "42")
	msg.Metadata.Set("tenant", "acme")

	id, source, err := chain.ID(msg, 255)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s, found in %s\n", keys.Format(id), source)

	_, _, err = chain.ID(message.NewMessage("", nil), 255)
	fmt.Println(err)

	// Output:
	// c=acme h:42, found in metadata event_id
	// keys: the message has no id
}
