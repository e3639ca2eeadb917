package router

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const variablePrefix = "MILLPOND_"

// environment reads variables. An empty one is as good as none.
func (r *reading) environment(environ []string) {
	known := make(map[string]field)
	for _, f := range fields {
		if name := f.variable(); name != "" {
			known[name] = f
		}
	}
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || text == "" {
			continue
		}
		f, ok := known[name]
		if !ok {
			r.unknownVariable(name, known)
			continue
		}
		into := f.of(reflect.ValueOf(&r.config).Elem(), f.path)
		here := origin{where: name, line: afterFiles}
		if before, ok := r.origins[f.path]; ok {
			r.overridden[f.path], r.overriddenAt[f.path] = plainText(into.Interface()), before.where
		}
		if fix := setText(into, text); fix != "" {
			r.badf(here, f.path, "is %s: %s", shown(into, text), fix)
			continue
		}
		r.origins[f.path] = here
	}
}

// afterFiles is the line of variables, so that their problems come last.
const afterFiles = 1 << 30

var (
	// Of other programs and adapters.
	foreignVariable = regexp.MustCompile(`^MILLPOND_(TEST|SOAK|SEED)`)
	// credentials are what adapters read for themselves.
	credentials = regexp.MustCompile(`^MILLPOND_(KAFKA|AMQP)_`)
	// Kubernetes sets these for services whose names begin with millpond.
	serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
)

// unknownVariable complains about a variable that was probably meant for a field. Others
// may be anybody's.
func (r *reading) unknownVariable(name string, known map[string]field) {
	if foreignVariable.MatchString(name) || serviceLink.MatchString(name) {
		return
	}
	here := origin{where: name, line: afterFiles}
	if prefix := credentials.FindString(name); prefix != "" {
		if name != prefix+"USERNAME" && name != prefix+"PASSWORD" {
			r.badf(here, "", "there is no such variable: there are %sUSERNAME and %sPASSWORD", prefix, prefix)
		}
		return
	}
	names := make([]string, 0, len(known))
	for _, f := range fields {
		if v := f.variable(); v != "" {
			names = append(names, v)
		}
	}
	rest := strings.TrimPrefix(name, variablePrefix)
	if section := strings.ToLower(rest); slices.Contains(below(""), section) && isSection(section) {
		r.badf(here, "", "is a section and no field: %s", variablesOf(section, names))
		return
	}
	best, ok := nearest(rest, trimmed(names))
	if i := slices.IndexFunc(names, func(v string) bool { return strings.HasSuffix(v, "_"+rest) }); i >= 0 {
		best, ok = strings.TrimPrefix(names[i], variablePrefix), true
	}
	if ok {
		r.badf(here, "", "there is no such variable: did you mean %s%s?", variablePrefix, best)
		return
	}
	for _, section := range below("") {
		if isSection(section) && strings.HasPrefix(rest, strings.ToUpper(section)+"_") {
			r.badf(here, "", "there is no such variable: %s", variablesOf(section, names))
			return
		}
	}
}

func isSection(path string) bool { return field{path: path}.section() }

// variablesOf says which variables a section has.
func variablesOf(section string, names []string) string {
	if section == "handlers" {
		return "handlers have none, write them into the file"
	}
	var there []string
	for _, v := range names {
		if strings.HasPrefix(v, variablePrefix+strings.ToUpper(section)+"_") {
			there = append(there, v)
		}
	}
	return "there are " + strings.Join(there, ", ")
}

func trimmed(names []string) []string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = strings.TrimPrefix(name, variablePrefix)
	}
	return short
}
