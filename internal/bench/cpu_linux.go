package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// clientTime returns the processor time of this process.
func clientTime() (time.Duration, bool) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}

// processTime returns the processor time of another process with one thread, as the
// scheduler has counted it, which is to the nanosecond.
func processTime(pid int) (time.Duration, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, false
	}
	running, _, _ := bytes.Cut(b, []byte(" "))
	ns, err := strconv.ParseInt(string(running), 10, 64)
	return time.Duration(ns), err == nil
}
