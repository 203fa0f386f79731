/*
 * settings.c
 *		The settings, with their ranges.
 *
 * Those that an analyst may change are wishes, not permissions: limits that
 * bind are the owner's and are kept in the catalogue.  Two are administrators'.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "dpsql.h"

enum
{
	METHOD_AUTO,
	METHOD_RESIDUAL,
	METHOD_ELASTIC,
	METHOD_SAMPLING,
	METHOD_SAMPLING_PUBLISHED,
	METHOD_SKETCH,
	METHOD_SKETCH_PUBLISHED,
	METHOD_TRUNCATION,
};

enum
{
	STATISTICS_LIVE,
	STATISTICS_STORED,
	STATISTICS_AUTO,
};

enum
{
	MECHANISM_AUTO,
	MECHANISM_LAPLACE,
	MECHANISM_CAUCHY,
	MECHANISM_CALIBRATED,
	MECHANISM_QUANTILE,
	MECHANISM_R2T,
};

static const struct config_enum_entry refused_rows_options[] = {
	{"error", REFUSED_ROWS_ERROR, false},
	{"none", REFUSED_ROWS_NONE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry method_options[] = {
	{"auto", METHOD_AUTO, false},
	{"residual", METHOD_RESIDUAL, false},
	{"elastic", METHOD_ELASTIC, false},
	{"sampling", METHOD_SAMPLING, false},
	{"sampling_published", METHOD_SAMPLING_PUBLISHED, false},
	{"sketch", METHOD_SKETCH, false},
	{"sketch_published", METHOD_SKETCH_PUBLISHED, false},
	{"truncation", METHOD_TRUNCATION, false},
	{NULL, 0, false}
};

static const struct config_enum_entry mechanism_options[] = {
	{"auto", MECHANISM_AUTO, false},
	{"laplace", MECHANISM_LAPLACE, false},
	{"cauchy", MECHANISM_CAUCHY, false},
	{"calibrated", MECHANISM_CALIBRATED, false},
	{"quantile", MECHANISM_QUANTILE, false},
	{"r2t", MECHANISM_R2T, false},
	{NULL, 0, false}
};

static const struct config_enum_entry statistics_options[] = {
	{"live", STATISTICS_LIVE, false},
	{"stored", STATISTICS_STORED, false},
	{"auto", STATISTICS_AUTO, false},
	{NULL, 0, false}
};

static double epsilon;
static double delta;
static double max_epsilon_per_query;
static double confidence;
static double sampling_rate;
static int	max_contribution;
static int	max_groups_contributed;
static int	max_rows_contributed;
static int	min_frequency;
static int	method;
static int	mechanism;
static int	statistics;
int			refused_rows;
static bool sampling_filter;
static bool fresh;
bool		preload_python;
bool		explain_buffers;
int			shards_timeout;

/*
 * The server's own range check comes first and knows closed ranges only, and
 * its errors are of class 22: the ranges given to it are wide, these bind.
 */
static bool
reject(const char *range)
{
	GUC_check_errcode(ERRCODE_DPSQL_PARAMETER);
	GUC_check_errdetail("It must be %s.", range);
	GUC_check_errhint("Use SHOW to see the present value and RESET to return to the default.");
	return false;
}

static bool
check_epsilon(double *value, void **extra, GucSource source)
{
	return (*value >= 1e-6 && *value <= 100) || reject("at least 0.000001 and at most 100");
}

static bool
check_delta(double *value, void **extra, GucSource source)
{
	return (*value >= 0 && *value <= 1e-3) || reject("at least 0 and at most 0.001");
}

static bool
check_max_epsilon(double *value, void **extra, GucSource source)
{
	return *value == -1 || (*value > 0 && *value <= 100) ||
		reject("-1 (no limit), or greater than 0 and at most 100");
}

static bool
check_confidence(double *value, void **extra, GucSource source)
{
	/* settings are shown, and so read, with six digits */
	return (*value >= 1e-6 && *value <= 0.999999) || reject("at least 0.000001 and at most 0.999999");
}

static bool
check_sampling_rate(double *value, void **extra, GucSource source)
{
	return (*value > 0 && *value <= 1) || reject("greater than 0 and at most 1");
}

void
settings_init(void)
{
	DefineCustomRealVariable("dp.epsilon",
							 "Privacy loss epsilon that one query may cost.",
							 NULL, &epsilon, 1.0, -1e9, 1e9,
							 PGC_USERSET, 0, check_epsilon, NULL, NULL);
	DefineCustomRealVariable("dp.delta",
							 "Probability delta that one query may cost.",
							 NULL, &delta, 1e-8, -1e9, 1e9,
							 PGC_USERSET, 0, check_delta, NULL, NULL);
	DefineCustomEnumVariable("dp.method",
							 "How the sensitivity of a join is bounded.",
							 NULL, &method, METHOD_AUTO, method_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("dp.mechanism",
							 "Which noise is added.",
							 NULL, &mechanism, MECHANISM_AUTO, mechanism_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("dp.max_epsilon_per_query",
							 "Most epsilon that any one query may spend, -1 for no limit.",
							 "Protects against views of others, and functions that leave settings alone; one with a SET clause may raise it.",
							 &max_epsilon_per_query, -1, -1e9, 1e9,
							 PGC_USERSET, 0, check_max_epsilon, NULL, NULL);
	DefineCustomBoolVariable("dp.fresh",
							 "Ask again, and pay again, instead of repeating a stored answer.",
							 NULL, &fresh, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomRealVariable("dp.confidence",
							 "Confidence of the intervals that dp_interval_low and _high give.",
							 NULL, &confidence, 0.95, -1e9, 1e9,
							 PGC_USERSET, 0, check_confidence, NULL, NULL);
	DefineCustomRealVariable("dp.sampling_rate",
							 "Random walks that the sampling methods may make, as a part of the rows.",
							 NULL, &sampling_rate, 1e-3, -1e9, 1e9,
							 PGC_USERSET, 0, check_sampling_rate, NULL, NULL);
	DefineCustomBoolVariable("dp.sampling_filter",
							 "Only groups that some walk of the whole join met compete, when sampling as published.",
							 NULL, &sampling_filter, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dp.max_contribution",
							"Of a privacy unit with more results only so many are counted.",
							"The smaller it is, the less noise r2t adds.",
							&max_contribution, 1000000000, 1, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dp.max_groups_contributed",
							"Of a privacy unit in more groups its results in so many count, 0 for all.",
							"Where groups are not public a guess saves the part of epsilon that drawing it costs.",
							&max_groups_contributed, 0, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dp.max_rows_contributed",
							"Of a privacy unit with more results only so many are counted, 0 to draw it.",
							"A good guess saves the part of epsilon that drawing it costs; counts then race for none.",
							&max_rows_contributed, 0, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dp.min_frequency",
							"Groups that are not public are shown only if so many privacy units, or rows, are in them.",
							"Their noisy number is compared: of units where those are protected, of results of the join otherwise.",
							&min_frequency, 0, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("dp.statistics",
							 "Whether sensitivities come from the data or from statistics that were stored.",
							 "Stored ones are looked up at once and cost accuracy with every change since.",
							 &statistics, STATISTICS_LIVE, statistics_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("dp.refused_rows",
							 "What a statement gets that wants rows of a protected relation: an error, or its columns and no row.",
							 "For tools that learn the columns of a query from its first row.",
							 &refused_rows, REFUSED_ROWS_ERROR, refused_rows_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dp.shards_timeout",
							"A question waits so long for servers that hold parts, and writers for the question; 0 for no limit.",
							"Then it is refused and costs nothing.",
							&shards_timeout, 5000, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		DefineCustomBoolVariable("dp.preload_python",
								 "Import dpsql's Python package once, at server start.",
								 "A new session's first answer is some tenths of a second earlier.",
								 &preload_python, true,
								 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("dp.explain_buffers",
							 "EXPLAIN (BUFFERS, WAL) is allowed.",
							 "It tells which pages are in memory, and so what private questions of others have read.",
							 &explain_buffers, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved(DPSQL_SCHEMA);
}
