package kafka

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientLogger passes on the client's messages: warnings and errors as Info, because the client
// recovers from them, the others as Trace.
type clientLogger struct{ logger watermill.LoggerAdapter }

func (l clientLogger) Level() kgo.LogLevel {
	if _, silent := l.logger.(watermill.NopLogger); silent {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelInfo
}

func (l clientLogger) Log(level kgo.LogLevel, msg string, pairs ...any) {
	fields := watermill.LogFields{}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	switch level {
	case kgo.LogLevelError, kgo.LogLevelWarn:
		l.logger.Info("Kafka client: "+msg, fields)
	case kgo.LogLevelNone, kgo.LogLevelInfo, kgo.LogLevelDebug:
		l.logger.Trace("Kafka client: "+msg, fields)
	}
}
