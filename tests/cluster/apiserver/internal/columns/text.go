package columns

import (
	"slices"
	"strings"
)

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func value(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}

func sorted(in []string) []string { slices.Sort(in); return in }

func pairs(in map[string]string) string {
	out := []string{}
	for k, v := range in {
		out = append(out, k+"="+v)
	}
	return orNone(strings.Join(sorted(out), ","))
}
