//go:build !linux

package main

import "time"

// Processor time is measured on Linux only.

func clientTime() (time.Duration, bool) { return 0, false }

func processTime(int) (time.Duration, bool) { return 0, false }
