/*
 * position.c
 *		From a place in the analysed statement to the one in the text that a
 *		person wrote.
 *
 * Query trees keep the locations of expressions, not of joins, relations or
 * clauses.  But the analysed statement is printed in the order of the original
 * one, so the n-th time that a word occurs in the one is the n-th time in the
 * other, if it occurs equally often in both.  Where it does not, nothing is
 * claimed.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "common/keywords.h"
#include "parser/parser.h"
#include "parser/scanner.h"

#include "dpsql.h"

#define SHOWN_BYTES 60

typedef struct
{
	int			start;			/* byte */
	char	   *text;			/* as it is compared */
	bool		word;
} Token;

typedef struct
{
	Token	   *tokens;
	int			count;
} Tokens;

/* Words without quotes, in lower case where PostgreSQL would fold them. */
static Token
token_of(const char *raw, int start)
{
	Token		token = {start, NULL, false};
	char	   *to;

	token.text = to = palloc(strlen(raw) + 1);
	if (raw[0] == '"')
	{
		token.word = true;
		for (const char *from = raw + 1; *from; from++)
		{
			if (*from == '"' && *++from != '"')
				break;
			*to++ = *from;
		}
	}
	else
	{
		token.word = isalpha((unsigned char) raw[0]) || raw[0] == '_' || IS_HIGHBIT_SET(raw[0]);
		for (const char *from = raw; *from; from++)
			*to++ = token.word ? pg_ascii_tolower((unsigned char) *from) : *from;
	}
	*to = '\0';
	return token;
}

static Tokens
scan(const char *sql, bool conforming)
{
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		start;
	core_yyscan_t scanner = scanner_init(sql, &extra, &ScanKeywords, ScanKeywordTokens);
	Tokens		found = {NULL, 0};
	int			allocated = 64;

	extra.standard_conforming_strings = conforming;
	extra.escape_string_warning = false;
	extra.backslash_quote = BACKSLASH_QUOTE_ON;
	found.tokens = palloc(sizeof(Token) * allocated);
	while (core_yylex(&value, &start, scanner) != 0)
	{
		if (found.count == allocated)
			found.tokens = repalloc(found.tokens, sizeof(Token) * (allocated *= 2));
		/* flex ends the token that it has just read with a zero byte */
		found.tokens[found.count++] = token_of(extra.scanbuf + start, start);
	}
	scanner_finish(scanner);
	return found;
}

static bool
is(const Tokens *all, int i, const char *text)
{
	return i >= 0 && i < all->count && strcmp(all->tokens[i].text, text) == 0;
}

static bool
is_word(const Tokens *all, int i)
{
	return i >= 0 && i < all->count && all->tokens[i].word;
}

/* The last word of a dotted name. */
static int
last_part(const Tokens *all, int i)
{
	while (is_word(all, i) && is(all, i + 1, ".") && is_word(all, i + 2))
		i += 2;
	return i;
}

/* The first word of a dotted name. */
static int
first_part(const Tokens *all, int i)
{
	while (is_word(all, i) && is(all, i - 1, ".") && is_word(all, i - 2))
		i -= 2;
	return i;
}

/*
 * The query around a token, from first to last: the statement, or the innermost
 * parentheses that start with SELECT or WITH.
 */
static void
query_around(const Tokens *all, int i, int *first, int *last)
{
	int			depth = 0;

	for (*first = i; *first > 0; (*first)--)
	{
		int			before = *first - 1;

		if (is(all, before, ";"))
			break;
		if (is(all, before, ")"))
			depth++;
		else if (is(all, before, "("))
		{
			if (depth > 0)
				depth--;
			else if (is(all, *first, "select") || is(all, *first, "with"))
				break;
		}
	}
	depth = 0;
	for (*last = *first; *last < all->count; (*last)++)
	{
		if (is(all, *last, ";") || (depth == 0 && is(all, *last, ")")))
			break;
		if (is(all, *last, "("))
			depth++;
		else if (is(all, *last, ")"))
			depth--;
	}
}

static int
at_byte(const Tokens *all, int byte)
{
	int			i = 0;

	while (i < all->count && all->tokens[i].start < byte)
		i++;
	return i;
}

/* Is it that word, and not a name given with AS?  (Those, printing adds.) */
static bool
occurs(const Tokens *all, int i, const char *text)
{
	return is(all, i, text) && !is(all, i - 1, "as");
}

/* How often a word occurs from first to before last. */
static int
occurrences(const Tokens *all, int first, int last, const char *text)
{
	int			count = 0;

	for (int i = first; i < last; i++)
		count += occurs(all, i, text);
	return count;
}

/* Call private aggregates by the names that they have over exposed views. */
static void
use_ordinary_names(Tokens *all)
{
	for (int i = 0; i < all->count; i++)
	{
		const char *name = all->tokens[i].word ? ordinary_name(all->tokens[i].text) : NULL;

		if (name)
			all->tokens[i].text = pstrdup(name);
	}
}

/* The token behind the parentheses that open at a token. */
static int
behind_parentheses(const Tokens *all, int i)
{
	int			depth = 0;

	for (; i < all->count; i++)
	{
		if (is(all, i, "("))
			depth++;
		else if (is(all, i, ")") && --depth == 0)
			return i + 1;
	}
	return all->count;
}

/* (SELECT columns FROM schema.relation [alias]): what stands for an exposed view. */
static bool
stands_for_view(const Tokens *all, int first, int last)
{
	int			i = first + 2;
	int			name;

	if (!is(all, first + 1, "select"))
		return false;
	while (i < last && !is(all, i, "from"))
		i = is(all, i, "(") ? behind_parentheses(all, i) : i + 1;
	name = last_part(all, i + 1);
	if (!is(all, i, "from") || name == i + 1)
		return false;
	return name == last - 2 || (name == last - 3 && is_word(all, name + 1));
}

/* Nobody wrote these words: nothing is found by them. */
static void
pass_over_views(Tokens *all)
{
	for (int i = 0; i < all->count; i++)
	{
		int			end = is(all, i, "(") ? behind_parentheses(all, i) : i;

		if (end > i && stands_for_view(all, i, end))
		{
			for (; i < end; i++)
				all->tokens[i].text = "";
		}
	}
}

static bool
is_aggregate(const char *word, bool ordinary)
{
	return strncmp(word, "dp_", 3) == 0 ||
		(ordinary && (ordinary_name(word) || strncmp(word, "percentile_", 11) == 0));
}

static int
find(const char *analysed, int position, const char *source, int location, bool conforming,
	 bool ordinary)
{
	Tokens		there = scan(analysed, true);
	Tokens		here = scan(source, conforming);
	int			target;
	int			first = 0;
	int			last = here.count;
	int			number;
	const char *at = analysed;
	const char *text;

	for (int i = 1; i < position && *at; i++)
		at += pg_mblen(at);
	target = at_byte(&there, at - analysed);
	while (is(&there, target, "("))
		target++;
	target = last_part(&there, target);
	if (target >= there.count)
		return 0;
	if (ordinary)
	{
		use_ordinary_names(&there);
		use_ordinary_names(&here);
		pass_over_views(&there);
	}
	text = there.tokens[target].text;
	if (text[0] == '\0')
		return 0;

	if (location >= 0)
	{
		int			aggregate = at_byte(&here, location);

		/* is this the text in which the interception found the aggregate? */
		if (aggregate >= here.count || here.tokens[aggregate].start != location ||
			!is_aggregate(here.tokens[last_part(&here, aggregate)].text, ordinary))
			return 0;
		query_around(&here, aggregate, &first, &last);
	}
	if (occurrences(&there, 0, there.count, text) != occurrences(&here, first, last, text))
		return 0;
	number = occurrences(&there, 0, target, text);
	for (int i = first; i < last; i++)
	{
		if (occurs(&here, i, text) && number-- == 0)
			return pg_mbstrlen_with_len(source, here.tokens[first_part(&here, i)].start) + 1;
	}
	return 0;
}

/* The words of the analysed statement that an error points at. */
char *
words_there(const char *text, int position)
{
	const char *from = text;
	char	   *words;
	char	   *to;
	int			length;

	for (int i = 1; i < position && *from; i++)
		from += pg_mblen(from);
	words = to = palloc(strlen(from) + 1);
	for (; *from; from++)
	{
		bool		space = *from == ' ' || *from == '\n';

		if (!space || (to > words && to[-1] != ' '))
			*to++ = space ? ' ' : *from;
	}
	*to = '\0';
	length = pg_mbcliplen(words, to - words, SHOWN_BYTES);
	return psprintf("The analysed statement reads there: %.*s%s", length, words,
					words[length] ? "..." : "");
}

/*
 * Where the source says what the analysed statement says at a position (both
 * in characters from 1), or 0 if that cannot be told.
 *
 * location: of the private aggregate whose query was analysed, in bytes; -1 if
 * the source holds that query and nothing else.
 *
 * ordinary: PostgreSQL's aggregates over exposed views were asked for.
 */
int
find_in_source(const char *analysed, int position, const char *source, int location,
			   bool conforming, bool ordinary)
{
	MemoryContext context = CurrentMemoryContext;
	volatile int result = 0;

	if (source == NULL)
		return 0;
	/* a text that was read under other settings need not be readable now */
	PG_TRY();
	{
		result = find(analysed, position, source, location, conforming, ordinary);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		result = 0;
	}
	PG_END_TRY();
	return result;
}
