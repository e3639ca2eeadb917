# Not run yet: docs/releasing.md lists what the first release has to show.
# The command millpond: docker build -t millpond . && docker run --rm -e MILLPOND_STORE_URL millpond stats
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /millpond ./cmd/millpond

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /millpond /millpond
ENTRYPOINT ["/millpond"]
