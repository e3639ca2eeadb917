package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Check collects what is wrong with the fields of a Config.
type Check struct {
	Package string // name that errors begin with

	errs []error
}

// Wrong notes that a field has a value that it must not have.
func (c *Check) Wrong(field string, value any, fix string) {
	c.errs = append(c.errs, fmt.Errorf("%s: Config.%s is %v: %s", c.Package, field, value, fix))
}

// NotNegative notes which of the fields are less than zero.
func NotNegative[T int | time.Duration](c *Check, fields map[string]T) {
	for field, n := range fields {
		if n < 0 {
			c.Wrong(field, n, "use a positive value, or 0 for the default")
		}
	}
}

// Access checks what says how the cluster is reached.
func (c *Check) Access(a Access) {
	if len(a.Brokers) == 0 {
		c.errs = append(c.errs, fmt.Errorf("%s: Config.Brokers is empty: give at least one host:port", c.Package))
	}
	for _, address := range a.Brokers {
		if host, port, err := net.SplitHostPort(address); err != nil && address == "" || err == nil && (host == "" || port == "") {
			c.Wrong("Brokers", fmt.Sprintf("%q", a.Brokers), "write host:port")
		}
	}
	switch {
	case a.SASL == "" && a.Username != "":
		c.Wrong("Username", fmt.Sprintf("%q", a.Username), "choose a mechanism with Config.SASL, or remove it")
	case a.SASL != "" && !slices.Contains(mechanisms, a.SASL):
		c.Wrong("SASL", fmt.Sprintf("%q", a.SASL), "use "+strings.Join(mechanisms, " or "))
	}
}

// Err returns all that was noted, by the names of the fields, as one error.
func (c *Check) Err() error {
	slices.SortFunc(c.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(c.errs...)
}

// OrDefault sets a field that is zero.
func OrDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
