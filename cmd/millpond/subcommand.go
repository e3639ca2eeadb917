package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// parent makes cmd the parent of other commands. It has no action of its own.
func parent(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = knownCommand, needCommand
	cmd.AddCommand(commands...)
	return cmd
}

// needCommand is the action of a parent command: an error.
func needCommand(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	return errors.Join(usagef("a command is missing"), cmd.Usage())
}

// knownCommand is the cobra.PositionalArgs of parent commands. An argument is an unknown command,
// so the error suggests similar ones.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := similar(cmd, args[0])
	for _, path := range namesakes(cmd.Root(), args[0]) {
		if !slices.Contains(meant, path) {
			meant = append(meant, path)
		}
	}
	if len(meant) > 0 {
		return usagef("%q is no command of %s: did you mean %s?", args[0], cmd.CommandPath(), strings.Join(meant, " or "))
	}
	return usagef("%q is no command of %s, which has %s", args[0], cmd.CommandPath(), strings.Join(subcommands(cmd), ", "))
}

// similar returns the commands of cmd with a similar name.
func similar(cmd *cobra.Command, name string) []string {
	const typos = 2
	cmd.SuggestionsMinimumDistance = typos
	var paths []string
	if len(name) > typos { // otherwise every short name is similar
		for _, found := range cmd.SuggestionsFor(name) {
			paths = append(paths, cmd.CommandPath()+" "+found)
		}
	}
	return paths
}

// namesakes returns the commands under cmd, at any depth, that have this name.
func namesakes(cmd *cobra.Command, name string) []string {
	var paths []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && (c.Name() == name || c.HasAlias(name)) {
			paths = append(paths, c.CommandPath())
		}
		paths = append(paths, namesakes(c, name)...)
	}
	return paths
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}
