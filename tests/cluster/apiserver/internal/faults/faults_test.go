package faults_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"wattpack.io/tests/cluster/apiserver/internal/faults"
)

func serve(t *testing.T, rules ...*faults.Rule) (*faults.Injector, http.Handler) {
	t.Helper()
	f := &faults.Injector{}
	for _, r := range rules {
		if err := f.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return f, f.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func TestStatusIsGivenAsOftenAsAsked(t *testing.T) {
	f, h := serve(t, &faults.Rule{Kind: faults.Status, Path: "^/api/v1/pods$", Code: 429, RetryAfter: 7, Count: 2})
	for i, want := range []int{429, 429, 200} {
		if got := get(h, "/api/v1/pods"); got.Code != want {
			t.Errorf("request %d: %d, wanted %d", i, got.Code, want)
		}
	}
	if got := get(h, "/api/v1/nodes"); got.Code != http.StatusOK {
		t.Errorf("another path met the fault: %d", got.Code)
	}
	if hits := f.List()[0].Hits; hits != 2 {
		t.Errorf("%d hits, wanted 2", hits)
	}
}

func TestWatchesAreToldApart(t *testing.T) {
	watch := true
	_, h := serve(t, &faults.Rule{Kind: faults.WatchError, Path: ".", Code: 410, Watch: &watch})
	if got := get(h, "/api/v1/pods"); got.Body.Len() != 0 {
		t.Errorf("a list met the fault: %s", got.Body)
	}
	if got := get(h, "/api/v1/pods?watch=true").Body.String(); !strings.Contains(got, `"type":"ERROR"`) || !strings.Contains(got, `"code":410`) {
		t.Errorf("the watch got %s", got)
	}
}

func TestHitsAreCountedOnceEachUnderConcurrency(t *testing.T) {
	const requests, faulty = 50, 20
	f, h := serve(t, &faults.Rule{Kind: faults.Status, Path: ".", Code: 500, Count: faulty})
	var wait sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for range requests {
		wait.Go(func() {
			if get(h, "/x").Code == http.StatusInternalServerError {
				mu.Lock()
				failed++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if failed != faulty || f.List()[0].Hits != faulty {
		t.Errorf("%d failed, %d counted, wanted %d", failed, f.List()[0].Hits, faulty)
	}
}

func TestAdminEndpointRefusesUnknownFields(t *testing.T) {
	f := &faults.Injector{}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequest(http.MethodPost, faults.Path, strings.NewReader(`{"kind":"stall","path":"/","typo":1}`)))
	if w.Code != http.StatusBadRequest || len(f.List()) != 0 {
		t.Errorf("%d, rules %v", w.Code, f.List())
	}
}
