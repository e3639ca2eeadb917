package claimtx

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestAClaimIsTriedAgainWhereItCanBeWon(t *testing.T) {
	t.Parallel()
	type answer struct {
		won     int
		outcome stores.Outcome
		version int64
		err     error
	}
	lost := errors.New("connection lost")
	for name, test := range map[string]struct {
		answers []answer
		want    answer
	}{
		"won":                 {[]answer{{won: 7}}, answer{7, stores.Claimed, 0, nil}},
		"judged":              {[]answer{{outcome: stores.Duplicate}}, answer{0, stores.Duplicate, 0, nil}},
		"failed":              {[]answer{{outcome: stores.Claimable, err: lost}}, answer{err: lost}},
		"taken over":          {[]answer{{outcome: stores.Claimable, version: 5}, {won: 7}}, answer{7, stores.Claimed, 5, nil}},
		"completed meanwhile": {[]answer{{outcome: stores.Claimable, version: 5}, {outcome: stores.Duplicate}}, answer{0, stores.Duplicate, 0, nil}},
		"claimable for ever":  {[]answer{{outcome: stores.Claimable}, {outcome: stores.Claimable}}, answer{0, stores.InFlight, 0, nil}},
		"lost at last":        {[]answer{{outcome: stores.Claimable}, {err: lost}}, answer{err: lost}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			won, verdict, err := Twice(&stores.Claim{}, func(c *stores.Claim) (int, stores.Verdict, error) {
				if tries > 0 {
					require.Equal(t, test.answers[0].version, c.Take)
				}
				a := test.answers[tries]
				tries++
				return a.won, stores.Verdict{Outcome: a.outcome, Failure: stores.FailureState{Version: a.version}}, a.err
			})
			require.Equal(t, test.want, answer{won, verdict.Outcome, verdict.Failure.Version, err})
			require.Len(t, test.answers, tries)
		})
	}
}
