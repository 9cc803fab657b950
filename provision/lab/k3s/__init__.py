"""A stand-in of k3s for rehearsals: its command line, files, tokens and registration, without Kubernetes."""
