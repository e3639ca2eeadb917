package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// once is the value of a flag that takes one. Of two the flag library would keep the last
// without a word, where both may have been meant.
type once struct {
	pflag.Value

	said *string
}

// Set implements pflag.Value.
func (o *once) Set(s string) error {
	if o.said != nil && *o.said != s {
		return errors.New("it is given twice, and takes one value: give it once")
	}
	o.said = &s
	return o.Value.Set(s)
}

// takeOnce lets every flag of the commands be given once, but for lists and switches.
func takeOnce(cmd *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list && f.NoOptDefVal == "" {
			f.Value = &once{Value: f.Value}
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(wrap)
	cmd.PersistentFlags().VisitAll(wrap)
	for _, sub := range cmd.Commands() {
		takeOnce(sub)
	}
}
