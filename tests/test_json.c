/* Tests JSON, printable names and checksums: correct results, hostile bytes, no leaks. */
#define _POSIX_C_SOURCE 200809L
#include <locale.h>
#include <stdlib.h>

static int live_blocks;

void *hook_malloc(size_t size) {
    void *pointer = malloc(size);
    if (pointer) live_blocks++;
    return pointer;
}

void hook_free(void *pointer) {
    live_blocks--;
    free(pointer);
}

#define MIRRORTRAIN_IMPLEMENTATION
#include "../mirrortrain.h"

#include "tap.h"

static int says(const char *fragment) {
    return strstr(mirt_last_error(), fragment) != NULL;
}

/* ---- JSON ---- */

static const char *const bad_json[][2] = {
    {"", "offset 0: the text ends"},
    {"  ", "offset 2: the text ends"},
    {"nul", "offset 0: expected a value"},
    {"nulll", "offset 4: something follows"},
    {"True", "expected a value"},
    {"{} x", "offset 3: something follows"},
    {"[1 2]", "offset 3: expected ',' or ']'"},
    {"[1,]", "offset 3: expected a value"},
    {"[,1]", "offset 1: expected a value"},
    {"[1", "offset 2: expected ',' or ']'"},
    {"{\"a\":1", "offset 6: expected ',' or '}'"},
    {"{\"a\":1,}", "offset 7: expected a member's name"},
    {"{\"a\" 1}", "offset 5: expected ':'"},
    {"{a:1}", "offset 1: expected a member's name"},
    {"{1:1}", "expected a member's name"},
    {"{\"a\":1,\"b\":2,\"a\":3}", "offset 17: the name \"a\" appears twice"},
    {"{\"a\":1,\"\\u0061\":3}", "appears twice"},
    {"\"abc", "offset 0: unterminated string"},
    {"\"abc\\\"", "unterminated string"},
    {"\"a\nb\"", "offset 2: control character"},
    {"\"\\x\"", "offset 1: unknown escape"},
    {"\"\\u12g4\"", "unknown escape"},
    {"\"\\u12", "unterminated string"},
    {"\"\\u12\"", "unknown escape"},
    {"\"\\u12/4\"", "unknown escape"},
    {"\"\\u12:4\"", "unknown escape"},
    {"\"\\ud800\"", "incomplete surrogate pair"},
    {"\"\\ud800\\u0041\"", "incomplete surrogate pair"},
    {"\"\\ud800\\n0041\"", "incomplete surrogate pair"},
    {"\"\\ud800\\ue000\"", "incomplete surrogate pair"},
    {"\"\\udc00\"", "incomplete surrogate pair"},
    {"\"\\u0000\"", "U+0000"},
    {"\"\x80\"", "offset 1: invalid UTF-8"},
    {"\"\xc0\xaf\"", "invalid UTF-8"},
    {"\"\xe0\x80\x80\"", "invalid UTF-8"},
    {"\"\xed\xa0\x80\"", "invalid UTF-8"},
    {"\"\xf4\x90\x80\x80\"", "invalid UTF-8"},
    {"\"\xf8\x88\x80\x80\x80\"", "invalid UTF-8"},
    {"\"\xe2\x82\"", "invalid UTF-8"},
    {"-", "expected a value"},
    {"+1", "expected a value"},
    {"01", "offset 1: something follows"},
    {"1.", "expected a value"},
    {".5", "expected a value"},
    {"1e", "expected a value"},
    {"1e+", "expected a value"},
    {"0x10", "something follows"},
    {"NaN", "expected a value"},
    {"-Infinity", "expected a value"},
    {"1e309", "too large for a double"},
    {"'a'", "expected a value"},
    {"// a\n1", "expected a value"},
    {"\xef\xbb\xbf{}", "offset 0: expected a value"},
};

static mirt__json *parse(mirt__pool *pool, const char *text) {
    return mirt__json_parse(pool, text, strlen(text));
}

static void test_json_rejects(void) {
    char *deep = (char *)malloc(300000 * 16);
    mirt__pool pool = {NULL};
    for (int i = 0; i < MIRT__COUNT(bad_json); i++) {
        bool refused = parse(&pool, bad_json[i][0]) == NULL;
        ok(refused && mirt_last_status() == MIRT_E_FORMAT && says(bad_json[i][1]), "JSON %s: %s", bad_json[i][1],
           refused ? mirt_last_error() : "accepted");
        mirt__pool_free(&pool);
    }
    ok(!mirt__json_parse(&pool, "1\0", 2) && says("offset 1: something follows"), "a zero byte is not white space");
    ok(!mirt__json_parse(&pool, "\"\\\0\"", 4) && says("offset 1: unknown escape"), "a zero byte is no escape");
    memset(deep, '[', 300000);
    ok(!mirt__json_parse(&pool, deep, 300000) && says("64 levels"), "300000 open brackets");
    memset(deep + 64, ']', 64);
    ok(mirt__json_parse(&pool, deep, 128) != NULL, "64 levels are read");
    memset(deep, '1', 200);
    deep[200] = 0;
    ok(!parse(&pool, deep) && says("128 characters"), "a number of 200 digits");
    mirt__pool_free(&pool);
    size_t size = 0;
    deep[size++] = '[';
    while (size < 4300000) deep[size++] = '1', deep[size++] = ',';
    ok(!mirt__json_parse(&pool, deep, size) && says("more than 262144 values"), "too many values");
    mirt__pool_free(&pool);
    free(deep);
}

static void test_json_reads(void) {
    mirt__pool pool = {NULL};
    const mirt__json *v = parse(&pool,
                                " {\"s\" : \"a\\n\\\"\\\\\\/\\u00e4\\u20ac\\uff01\\ud83d\\ude00\xc3\xa4\" "
                                ",\r\n\"n\":null,\"t\":true,"
                                "\"f\":false,\"a\":[1,-2.5e3,[],{}], \"\":0,\"i\":-9223372036854775808,"
                                "\"j\":9223372036854775807,\"k\":9223372036854775808,\"x\":1.0}\t");
    if (!ok(v && v->type == MIRT__JSON_OBJECT && v->count == 10, "an object of ten members")) return;
    const mirt__json *s = mirt__json_get(v, "s", MIRT__JSON_STRING), *a = mirt__json_get(v, "a", MIRT__JSON_ARRAY);
    ok(s && !strcmp(s->string, "a\n\"\\/\xc3\xa4\xe2\x82\xac\xef\xbc\x81\xf0\x9f\x98\x80\xc3\xa4"),
       "escapes and UTF-8");
    ok(s && s->offset == 8, "offset of a value");
    ok(a && a->count == 4 && a->item[0]->integer == 1 && a->item[1]->number == -2500.0 && !a->item[1]->integral &&
           a->item[2]->type == MIRT__JSON_ARRAY && a->item[2]->count == 0 && a->item[3]->type == MIRT__JSON_OBJECT,
       "array items");
    ok(!strcmp(v->item[0]->key, "s") && !strcmp(v->item[9]->key, "x"), "members keep their order");
    ok(mirt__json_get(v, "t", MIRT__JSON_BOOL)->truth && !mirt__json_get(v, "f", MIRT__JSON_BOOL)->truth, "booleans");
    ok(mirt__json_member(v, "n")->type == MIRT__JSON_NULL && mirt__json_member(v, "") != NULL,
       "null and the empty name");
    int64_t i = 0;
    ok(mirt__json_get_int(v, "i", INT64_MIN, 0, &i) == MIRT_OK && i == INT64_MIN, "the smallest integer");
    ok(mirt__json_get_int(v, "j", 0, INT64_MAX, &i) == MIRT_OK && i == INT64_MAX, "the largest integer");
    ok(mirt__json_get_int(v, "k", 0, INT64_MAX, &i) == MIRT_E_FORMAT &&
           mirt__json_member(v, "k")->number == 9223372036854775808.0,
       "one more is a double only: %s", mirt_last_error());
    ok(mirt__json_get_int(v, "x", 0, 9, &i) == MIRT_E_FORMAT, "1.0 is no integer");
    ok(mirt__json_get_int(v, "", 1, 9, &i) == MIRT_E_FORMAT && says("\"\" must be an integer from 1 to 9"),
       "out of range");
    ok(!mirt__json_get(v, "s", MIRT__JSON_NUMBER) && says("\"s\" is a string, but must be a number"), "wrong type");
    ok(!mirt__json_get(v, "zz", MIRT__JSON_NUMBER) && says("\"zz\" is missing"), "missing member");
    ok(!mirt__json_member(a, "s"), "an array has no members");
    mirt__pool_free(&pool);
}

static const double numbers[] = {0.0, 1.0, -1.0, 0.1, 1e-3, 0.1f, 3.14159265358979, 1e300, -2.5e-300, 5e-324,
                                 1.7976931348623157e308, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 16777217.0, 9007199254740992.0,
                                 9007199254740991.0, 123456789.125, 0.25};

/* Writes and reads in the locale that is set. */
static void test_json_numbers(const char *locale) {
    int wrong = 0, commas = 0;
    for (int i = 0; i < MIRT__COUNT(numbers); i++) {
        mirt__text text = {NULL, 0, 0, false};
        mirt__pool pool = {NULL};
        mirt__json_write_number(&text, numbers[i]);
        const mirt__json *v = parse(&pool, text.data);
        wrong += !v || v->number != numbers[i];
        commas += strchr(text.data, ',') != NULL;
        mirt__pool_free(&pool);
        mirt__text_free(&text);
    }
    ok(wrong == 0 && commas == 0, "numbers survive writing and reading in locale %s", locale);
}

static void test_json_writes(void) {
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE",
                                          "fr_FR.UTF-8", "fr_FR.utf8", "nl_NL.UTF-8"};
    mirt__text text = {NULL, 0, 0, false};
    mirt__json_write_string(&text, "a\"\\\b\f\n\r\t\x01\x1f/\xc3\xa4\x7f");
    ok(!strcmp(text.data, "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f/\xc3\xa4\\u007f\""), "string escapes: %s",
       text.data);
    mirt__text_clear(&text);
    mirt__json_write_string(&text, "\xc2\x80\xc2\x9f\xc2\xa0\xc2");
    ok(!strcmp(text.data, "\"\\u0080\\u009f\xc2\xa0\xc2\""),
       "controls of two bytes are escaped, their neighbor and half of one are not");
    mirt__text_clear(&text);
    mirt__json_write_number(&text, 0.001f);
    mirt__text_add(&text, " ");
    mirt__json_write_number(&text, 0.001);
    mirt__text_add(&text, " ");
    mirt__json_write_number(&text, 128);
    mirt__text_add(&text, " ");
    mirt__json_write_number(&text, -0.0);
    mirt__text_add(&text, " ");
    mirt__json_write_number(&text, NAN);
    ok(!strcmp(text.data, "0.0010000000474974513 0.001 128 -0 null"), "numbers: %s", text.data);
    mirt__text_free(&text);
    test_json_numbers("C");
    int tried = 0;
    for (int i = 0; i < MIRT__COUNT(locales) && !tried; i++) {
        if (!setlocale(LC_NUMERIC, locales[i])) continue;
        char half[16];
        snprintf(half, sizeof half, "%.1f", 0.5);
        tried = strcmp(half, "0,5") == 0;
        if (tried) test_json_numbers(locales[i]);
    }
    setlocale(LC_NUMERIC, "C");
    if (!tried) skip("no locale with a decimal comma here");
}

static void test_labels(void) {
    char out[MIRT__JSON_LABEL], name[200];
    ok(!strcmp(mirt__json_label("dense/kernel", out), "dense/kernel"), "a short label");
    ok(!strcmp(mirt__json_label("a\n\x7f\xff\xc3\xa4", out), "a???\xc3\xa4"), "unprintable bytes: %s", out);
    memset(name, 'x', sizeof name);
    name[0] = '\xc3', name[1] = '\xa4', name[199] = 0;
    ok(strlen(mirt__json_label(name, out)) < MIRT__JSON_LABEL && !strcmp(out + strlen(out) - 3, "..."),
       "a long label: %s", out);
}

/* ---- digests ---- */

static int sha256_is(const char *data, size_t size, size_t piece, const char *want) {
    mirt__sha256 sha;
    char hex[MIRT__SHA256_HEX];
    mirt__sha256_begin(&sha);
    for (size_t at = 0; at < size; at += piece)
        mirt__sha256_add(&sha, data + at, size - at < piece ? size - at : piece);
    mirt__sha256_end(&sha, hex);
    return strcmp(hex, want) == 0;
}

static uint32_t crc_slowly(const unsigned char *data, size_t size) {
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++) value = mirt__crc32c(value, data + i, 1);
    return value;
}

static void test_digests(void) {
    char *million = (char *)malloc(1000000);
    memset(million, 'a', 1000000);
    ok(sha256_is("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "SHA-256 of nothing");
    ok(sha256_is("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"), "SHA-256 of abc");
    ok(sha256_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 56,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"), "SHA-256 of two blocks");
    const char *of_million = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
    ok(sha256_is(million, 1000000, 1000000, of_million) && sha256_is(million, 1000000, 61, of_million) &&
           sha256_is(million, 1000000, 64, of_million), "SHA-256 of a million, in any pieces");
    ok(mirt__crc32c(0, "123456789", 9) == 0xE3069283u && mirt__crc32c(0, "", 0) == 0, "CRC-32C");
    unsigned char bytes[4099];
    for (int i = 0; i < 4099; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
    ok(mirt__crc32c(0, bytes, 4099) == crc_slowly(bytes, 4099) &&
           mirt__crc32c(7, bytes + 1, 4097) != mirt__crc32c(0, bytes + 1, 4097), "table and bit by bit agree");
    free(million);
}

int main(void) {
    test_json_rejects();
    test_json_reads();
    test_json_writes();
    test_labels();
    test_digests();
    ok(live_blocks == 0, "no block is left (%d)", live_blocks);
    return done_testing();
}
