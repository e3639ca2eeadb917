package sqs_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

func (l *logs) Error(msg string, err error, _ watermill.LogFields) {
	l.add(fmt.Sprintf("%s: %v", msg, err))
}

func (l *logs) Info(msg string, fields watermill.LogFields) {
	l.add(fmt.Sprintf("%s %v", msg, fields))
}

func (*logs) Debug(string, watermill.LogFields)                  {}
func (*logs) Trace(string, watermill.LogFields)                  {}
func (l *logs) With(watermill.LogFields) watermill.LoggerAdapter { return l }
