package router

import (
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
		i := slices.IndexFunc(fields, func(f field.Field) bool { return f.Variable(variablePrefix) == name })
		if i < 0 {
			r.unknownVariable(name)
			continue
		}
		f := fields[i]
		if before, ok := r.origins[f.Path]; ok {
			r.overridden[f.Path], r.overriddenAt[f.Path] = plainText(f, r.config.value(f)), before.where
		}
		r.take(origin{where: name, line: afterFiles}, f, place{path: f.Path}, text)
	}
}

// afterFiles is the line of variables, so that their problems come last.
const afterFiles = 1 << 30

var (
	// Of other programs and adapters.
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
	var names []string
	for _, f := range fields {
		if v := f.Variable(""); v != "" {
			names = append(names, v)
		}
	}
	if f, ok := known(strings.ToLower(rest)); ok && f.Section {
		bad("is a section and no field: %s", variablesOf(f.Path, names))
		return
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
			bad("there is no such variable: %s", variablesOf(f.Path, names))
			return
		}
	}
}

// variablesOf says which variables a section has.
func variablesOf(section string, names []string) string {
	if section == "handlers" {
		return "handlers have none, write them into the file"
	}
	return "there are " + strings.Join(beginning(names, strings.ToUpper(section)+"_"), ", ")
}

// beginning returns the variables whose names begin so.
func beginning(names []string, prefix string) (there []string) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			there = append(there, variablePrefix+name)
		}
	}
	return there
}
