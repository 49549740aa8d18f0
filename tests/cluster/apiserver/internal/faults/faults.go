// Package faults makes the server answer chosen requests as a server in trouble would.
package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is where rules are listed (GET), added (POST) and removed (DELETE).
const Path = "/testing/faults"

// loopbackServerName is how the server's own clients ask for it; they never meet a fault.
const loopbackServerName = "apiserver-loopback-client"

// Kinds of faults.
const (
	Status     = "status"      // answer with code, reason and Retry-After
	WatchError = "watch-error" // answer 200 and one ERROR event with code, as an expired watch does
	Stall      = "stall"       // wait for the given seconds, then answer as usual
	HalfOpen   = "half-open"   // send the headers, then nothing until the client gives up
	Reset      = "reset"       // break the connection
)

// Rule says which of the next requests fail, and how.
type Rule struct {
	Kind       string  `json:"kind"`
	Path       string  `json:"path"`                 // regular expression on the URL's path
	Method     string  `json:"method,omitempty"`     // empty: any
	Watch      *bool   `json:"watch,omitempty"`      // nil: both
	User       string  `json:"user_agent,omitempty"` // regular expression on the User-Agent
	Count      int     `json:"count"`                // how many requests; 0 means 1
	Code       int     `json:"code,omitempty"`
	RetryAfter int     `json:"retry_after_seconds,omitempty"`
	Seconds    float64 `json:"stall_seconds,omitempty"`
	Hits       int     `json:"hits"`

	path, user *regexp.Regexp
}

// Injector holds the rules in force. The zero value has none.
type Injector struct {
	mu    sync.Mutex
	rules []*Rule
}

// Add puts a rule in force.
func (f *Injector) Add(r *Rule) (err error) {
	if !slices.Contains([]string{Status, WatchError, Stall, HalfOpen, Reset}, r.Kind) {
		return fmt.Errorf("kind %q is not one of status, watch-error, stall, half-open, reset", r.Kind)
	}
	if (r.Kind == Status || r.Kind == WatchError) && (r.Code < 400 || r.Code > 599) {
		return fmt.Errorf("code %d is not between 400 and 599", r.Code)
	}
	if r.Count < 0 || r.Seconds < 0 || r.RetryAfter < 0 {
		return fmt.Errorf("count, stall_seconds and retry_after_seconds cannot be negative")
	}
	if r.path, err = regexp.Compile(r.Path); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	if r.user, err = regexp.Compile(r.User); err != nil {
		return fmt.Errorf("user_agent: %w", err)
	}
	if r.Count == 0 {
		r.Count = 1
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return nil
}

// List copies the rules with their hits, spent ones included.
func (f *Injector) List() []Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []Rule{}
	for _, r := range f.rules {
		out = append(out, *r)
	}
	return out
}

// Clear removes all rules.
func (f *Injector) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// take finds the first rule with hits left that matches, and counts the hit.
func (f *Injector) take(r *http.Request) *Rule {
	if r.URL.Path == Path || (r.TLS != nil && r.TLS.ServerName == loopbackServerName) {
		return nil
	}
	watch := r.URL.Query().Get("watch")
	watching := watch == "1" || watch == "true"
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, rule := range f.rules {
		if rule.Hits < rule.Count && (rule.Method == "" || rule.Method == r.Method) && (rule.Watch == nil || *rule.Watch == watching) &&
			rule.path.MatchString(r.URL.Path) && rule.user.MatchString(r.UserAgent()) {
			rule.Hits++
			hit := *rule
			return &hit
		}
	}
	return nil
}

// Wrap puts the faults in front of a handler.
func (f *Injector) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rule := f.take(r)
		if rule == nil {
			next.ServeHTTP(w, r)
			return
		}
		switch rule.Kind {
		case Status:
			writeStatus(w, rule)
		case WatchError:
			writeWatchError(w, rule)
		case Stall:
			timer := time.NewTimer(time.Duration(rule.Seconds * float64(time.Second)))
			defer timer.Stop()
			select {
			case <-timer.C:
				next.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		case HalfOpen:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the client may be gone; then the wait ends at once
			<-r.Context().Done()
		case Reset:
			panic(http.ErrAbortHandler)
		}
	})
}

var reasons = map[int]metav1.StatusReason{
	http.StatusGone: metav1.StatusReasonExpired, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusNotFound: metav1.StatusReasonNotFound,
}

func statusOf(rule *Rule) metav1.Status {
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(rule.Code),
		Reason: reasons[rule.Code], Message: fmt.Sprintf("injected fault: %d", rule.Code),
	}
	if rule.RetryAfter > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(rule.RetryAfter)}
	}
	return s
}

func writeStatus(w http.ResponseWriter, rule *Rule) {
	w.Header().Set("Content-Type", "application/json")
	if rule.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(rule.RetryAfter))
	}
	w.WriteHeader(rule.Code)
	writeJSON(w, statusOf(rule))
}

func writeWatchError(w http.ResponseWriter, rule *Rule) {
	w.Header().Set("Content-Type", "application/json;stream=watch")
	writeJSON(w, map[string]any{"type": "ERROR", "object": statusOf(rule)})
}

// writeJSON ignores a failed write: it means that the client has gone.
func writeJSON(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// ServeHTTP is the admin endpoint; the server puts it behind its authorization.
func (f *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, f.List())
	case http.MethodPost:
		var rule Rule
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		err := d.Decode(&rule)
		if err == nil {
			err = f.Add(&rule)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		f.Clear()
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "use GET, POST or DELETE", http.StatusMethodNotAllowed)
	}
}
