package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// describeMachine says where the run is made; dir is on the disk that is used.
func describeMachine(dir string) (machine, error) {
	flush, err := flushTime(dir)
	return machine{
		Processor: processor(),
		Cores:     runtime.GOMAXPROCS(0),
		System:    system(),
		Go:        runtime.Version(),
		Flush:     flush,
		LoadStart: loadAverage(),
		LoadEnd:   unknown,
	}, err
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// loadAverage is that of the last minute. What was above the cores was not ours alone.
func loadAverage() figure {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return unknown
	}
	first, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return unknown
	}
	return figure(load)
}

// flushTime is how long it takes to write 8 kB so that they stay, in microseconds.
func flushTime(dir string) (figure, error) {
	f, err := os.Create(filepath.Join(dir, "flush")) //nolint:gosec // our own directory
	if err != nil {
		return unknown, fmt.Errorf("measure the disk: %w", err)
	}
	defer f.Close()
	page := make([]byte, 8<<10)
	var times []figure
	for range 100 {
		start := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return unknown, fmt.Errorf("measure the disk: %w", err)
		}
		if err := f.Sync(); err != nil {
			return unknown, fmt.Errorf("measure the disk: %w", err)
		}
		times = append(times, figure(time.Since(start).Microseconds()))
	}
	return spanOf(times).Median, nil
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
