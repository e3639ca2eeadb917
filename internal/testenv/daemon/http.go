package daemon

import (
	"context"
	"fmt"
	"net/http"
)

// AnswersHTTP returns a [Program]'s Ready for a server that answers 200 to a GET of the
// path.
func AnswersHTTP(path string) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return err
		}
		request.Close = true // no connection stays behind
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s is answered by %s", path, response.Status)
		}
		return nil
	}
}
