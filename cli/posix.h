#ifndef POSIX_H
#define POSIX_H
/* Included first. On Linux -std=c11 hides the names of POSIX without this; elsewhere it would hide others. */
#if !defined(__APPLE__) && !defined(__FreeBSD__)
#define _POSIX_C_SOURCE 200809L
#endif
#endif
