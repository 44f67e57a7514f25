#!/bin/sh
# Prints the man page of the program, from its own help.
#
#   packaging/man_page.sh build/mirrortrain
set -eu
program=$1

# Text as it is: a backslash, and a dot or quote at the start of a line, mean something to troff.
plain() { printf '.nf\n'; sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"; printf '.fi\n'; }

version=$("$program" --version)
cat <<HEAD
.TH MIRRORTRAIN 1 "" "$version" "User Commands"
.SH NAME
mirrortrain \\- train image networks, mirrored over all devices of a machine
.SH SYNOPSIS
.B mirrortrain
.I COMMAND
.RI [ FLAGS ]
.SH DESCRIPTION
HEAD
"$program" --help | plain
for command in $("$program" --help | sed -n '/^usage/,/--help/s/^  \([a-z][a-z]*\)  .*/\1/p'); do
    printf '.SH "MIRRORTRAIN %s"\n' "$(printf %s "$command" | tr '[:lower:]' '[:upper:]')"
    "$program" "$command" --help | plain
done
