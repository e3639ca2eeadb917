package router

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/field"
)

// environment reads variables. Empty ones are ignored.
func (r *reading) environment(environ []string) {
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || text == "" {
			continue
		}
		f, at, ok := r.set(name)
		if !ok {
			r.unknownVariable(name)
			continue
		}
		if before, ok := r.origins[at.path]; ok {
			_, v, _ := r.config.at(at.path)
			r.overridden[at.path], r.overriddenAt[at.path] = plainText(f, v), before.where
		}
		r.take(origin{where: name, line: afterFiles}, f, at, text)
	}
}

// set returns the field that a variable sets.
func (r *reading) set(variable string) (f field.Field, at place, ok bool) {
	for _, f := range fields {
		switch name, isOne := r.destination(f, variable); {
		case isOne:
			return f, place{strings.Replace(f.Path, "*", name, 1), f.Path, name}, true
		case f.Variable(variablePrefix) == variable:
			return f, place{path: f.Path, entry: f.Path}, true
		}
	}
	return f, at, false
}

// afterFiles is the line of variables, so that their problems come last.
const afterFiles = 1 << 30

var (
	// Variables of other programs and adapters.
	foreignVariable = regexp.MustCompile(`^MILLPOND_(TEST|SOAK|SEED)`)
	// Kubernetes sets these for services whose names begin with millpond.
	serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
)

// credentials are variables that adapters read for themselves.
var credentials = []string{
	"AMQP_USERNAME", "AMQP_PASSWORD", "KAFKA_USERNAME", "KAFKA_PASSWORD", "NATS_USERNAME", "NATS_PASSWORD",
}

// unknownVariable reports a variable that was probably meant for a field or an adapter.
// Other variables may belong to other programs.
func (r *reading) unknownVariable(name string) {
	rest := strings.TrimPrefix(name, variablePrefix)
	if foreignVariable.MatchString(name) || serviceLink.MatchString(name) || slices.Contains(credentials, rest) {
		return
	}
	bad := func(format string, args ...any) {
		r.badf(origin{where: name, line: afterFiles}, "", format, args...)
	}
	family, _, _ := strings.Cut(rest, "_")
	if there := beginning(credentials, family+"_"); len(there) > 0 {
		bad("there is no such variable: there are %s", strings.Join(there, " and "))
		return
	}
	names := r.variables()
	if f, ok := known(strings.ToLower(rest)); ok && f.Section {
		bad("is a section and no field: %s", r.variablesOf(f.Path, names))
		return
	}
	if family == "DESTINATIONS" {
		names = slices.DeleteFunc(names, func(v string) bool { return !strings.HasPrefix(v, family) })
	}
	best, ok := field.Nearest(rest, append(names, credentials...))
	if i := slices.IndexFunc(names, func(v string) bool { return strings.HasSuffix(v, "_"+rest) }); i >= 0 {
		best, ok = names[i], true
	}
	if ok {
		bad("there is no such variable: did you mean %s%s?", variablePrefix, best)
		return
	}
	for _, f := range fields {
		if f.Section && strings.HasPrefix(rest, strings.ToUpper(f.Path)+"_") {
			bad("there is no such variable: %s", r.variablesOf(f.Path, names))
			return
		}
	}
}

// variables returns the names of all variables, without their prefix.
func (r *reading) variables() (names []string) {
	for _, f := range fields {
		switch v := f.Variable(""); {
		case v != "":
			names = append(names, v)
		case isOfDestination(f):
			for _, name := range slices.Sorted(maps.Keys(r.config.Destinations)) {
				names = append(names, strings.TrimPrefix(variableOf(f, name), variablePrefix))
			}
		}
	}
	return names
}

// variablesOf returns the variables of a section, for an error.
func (r *reading) variablesOf(section string, names []string) string {
	switch {
	case section == "handlers":
		return "handlers have none, write them into the file"
	case section == "destinations" && len(r.config.Destinations) == 0:
		return "the file names no destination: write destinations: {name: {}} into it"
	}
	return "there are " + strings.Join(beginning(names, strings.ToUpper(section)+"_"), ", ")
}

// beginning returns the variables with a prefix.
func beginning(names []string, prefix string) (there []string) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			there = append(there, variablePrefix+name)
		}
	}
	return there
}
