package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// once is the value of a flag that may be given once. The flag library would silently keep the last
// of two values.
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

// takeOnce makes every flag of the commands, except lists and switches, refuse a second value.
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

// refuseEmpty refuses flags with an empty value, such as from an unset variable: they would select
// more than was meant.
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
