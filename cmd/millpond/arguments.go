package main

import "github.com/spf13/cobra"

// noArguments is the cobra.PositionalArgs of commands with flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no arguments: leave out %q", cmd.CommandPath(), args[0])
}

// oneArgument is the cobra.PositionalArgs of commands with at most one argument.
func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return usagef("%s takes one argument at most: leave out %q", cmd.CommandPath(), args[1])
}

// oneNumber is the cobra.PositionalArgs of commands that show one item.
func oneNumber(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("show which %s? Give one number", what)
		}
		return nil
	}
}
