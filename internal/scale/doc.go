// Command scale measures one service with one to eight processes: on one PostgreSQL, on two
// that are split by key, and on DynamoDB Local, all behind one Kafka broker.
//
//	go run ./internal/scale                       # some minutes: make scale
//	go run ./internal/scale -on "2 PostgreSQL"    # one of them
//	go run ./internal/scale -processes 1,2,4      # fewer processes
//	go run ./internal/scale -work 20ms            # a handler that also waits for something else
//	go run ./internal/scale -svg bin/scale.svg    # draws the rates
//
// A cell is a topic, a new group, processes that are started at once, and so many messages for them
// when they share the partitions. Its rate is that of the middle 80 % of the messages. Then each store is run once more while processes are killed, leave and come, so
// that partitions move. After every cell the effects are counted in the databases: none may be
// missing, and none there twice, or the program fails.
package main
