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

// refuseEmpty refuses flags that are given and empty, as those with a variable that is not
// set: a selection would reach more than was asked for.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0
		}
		if empty && err == nil {
			err = usagef("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}
