/* Updates of rows in place: Adagrad, Adam and FTRL.
 *
 * A record is a parameter's row followed by its state, as `fleetx.ps.tables.row_optimizers` lists
 * it. Every operation is rounded by itself, in the order in which it is written, so that results
 * have the same bits on every processor and in `rows_in_numpy.py`.
 */
#ifndef FLEETX_ROW_UPDATES_H
#define FLEETX_ROW_UPDATES_H

#include "_row_store.h"

#include <math.h>

typedef enum { ADAGRAD, ADAM, FTRL, RULES } Rule;

static const char *const RULE_NAMES[RULES] = {"adagrad", "adam", "ftrl"};
/* How many settings a rule has: see `settings` below. */
static const Py_ssize_t RULE_SETTINGS[RULES] = {2, 7, 3};

/* adagrad: rate, epsilon; adam: rate, beta1, beta2, epsilon, whether the bias correction scales it,
 * and the powers of both betas if all rows share them (else NaN: they follow the moments);
 * ftrl: rate, l1, l2. */
typedef struct {
    RowStore *store;
    const int64_t *rows;
    const void *grads;
    Py_ssize_t count;
    size_t columns;
    double settings[7];
} Update;

static inline int shares_powers(const double *settings) {
    return !isnan(settings[5]);
}

/* The numbers of a record. */
static size_t record_numbers(Rule rule, size_t columns, const double *settings) {
    switch (rule) {
    case ADAGRAD:
        return 2 * columns;
    case ADAM:
        return 3 * columns + (shares_powers(settings) ? 0 : 2);
    default:
        return 3 * columns;
    }
}

#define INLINE static inline __attribute__((always_inline))
#define JOIN(name, suffix) name##_##suffix

/* The formulas, once for float and once for double. */
#define UPDATES(REAL, SUFFIX, SQRT, ABS)                                                           \
    INLINE void JOIN(adagrad, SUFFIX)(REAL *restrict p, const REAL *restrict g, size_t n,          \
                                      const double *settings) {                                    \
        const REAL rate = (REAL)settings[0], epsilon = (REAL)settings[1];                          \
        REAL *restrict m = p + n;                                                                  \
        for (size_t i = 0; i < n; i++) {                                                           \
            m[i] = m[i] + g[i] * g[i];                                                             \
            p[i] = p[i] - g[i] / (SQRT(m[i]) + epsilon) * rate;                                    \
        }                                                                                          \
    }                                                                                              \
    INLINE void JOIN(adam, SUFFIX)(REAL *restrict p, const REAL *restrict g, size_t n,             \
                                   const double *settings) {                                       \
        const REAL beta1 = (REAL)settings[1], beta2 = (REAL)settings[2];                           \
        const REAL rest1 = (REAL)(1.0 - settings[1]), rest2 = (REAL)(1.0 - settings[2]);           \
        REAL *restrict m = p + n, *restrict v = m + n, *powers = v + n;                            \
        const int shared = shares_powers(settings);                                                \
        const REAL power1 = shared ? (REAL)settings[5] : powers[0];                                \
        const REAL power2 = shared ? (REAL)settings[6] : powers[1];                                \
        const REAL root = SQRT(1 - power2), step = (REAL)settings[0] * root / (1 - power1);        \
        REAL epsilon = (REAL)settings[3];                                                          \
        if (settings[4] != 0.0) {                                                                  \
            epsilon = root * epsilon;                                                              \
        }                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                           \
            m[i] = m[i] * beta1 + g[i] * rest1;                                                    \
            v[i] = v[i] * beta2 + g[i] * g[i] * rest2;                                             \
            p[i] = p[i] - m[i] / (SQRT(v[i]) + epsilon) * step;                                    \
        }                                                                                          \
        if (!shared) {                                                                             \
            powers[0] = power1 * beta1;                                                            \
            powers[1] = power2 * beta2;                                                            \
        }                                                                                          \
    }                                                                                              \
    INLINE void JOIN(ftrl, SUFFIX)(REAL *restrict p, const REAL *restrict g, size_t n,             \
                                   const double *settings) {                                       \
        const REAL rate = (REAL)settings[0], l1 = (REAL)settings[1];                               \
        const REAL twice = (REAL)(2.0 * settings[2]);                                              \
        REAL *restrict squared = p + n, *restrict linear = squared + n;                            \
        for (size_t i = 0; i < n; i++) {                                                           \
            const REAL sum = squared[i] + g[i] * g[i];                                             \
            const REAL before = SQRT(squared[i]), after = SQRT(sum);                               \
            const REAL z = linear[i] + g[i] - (after - before) / rate * p[i];                      \
            const REAL towards = z > 0 ? l1 : -l1;                                                 \
            const REAL value = (towards - z) / (after / rate + twice);                             \
            squared[i] = sum;                                                                      \
            linear[i] = z;                                                                         \
            p[i] = ABS(z) > l1 ? value : 0;                                                        \
        }                                                                                          \
    }

UPDATES(float, f32, sqrtf, fabsf)
UPDATES(double, f64, sqrt, fabs)

#define EACH_ROW(RULE, REAL, SUFFIX, COLUMNS)                                                      \
    for (Py_ssize_t i = 0; i < update->count; i++) {                                               \
        if (i + AHEAD < update->count) {                                                           \
            prefetch_row(update->store, (uint64_t)update->rows[i + AHEAD], 0, record);             \
        }                                                                                          \
        JOIN(RULE, SUFFIX)                                                                         \
        ((REAL *)row_to_change(update->store, (uint64_t)update->rows[i]),                          \
         (const REAL *)update->grads + (size_t)i * (COLUMNS), (COLUMNS), update->settings);        \
    }

/* Loops over a number of columns that the compiler knows need no rest. */
#define UPDATE_ROWS(RULE, REAL, SUFFIX)                                                            \
    WIDE static void RULE##_rows_##SUFFIX(const Update *update) {                                  \
        const size_t record = update->store->record;                                               \
        switch (update->columns) {                                                                 \
        case 8:                                                                                    \
            EACH_ROW(RULE, REAL, SUFFIX, 8) break;                                                 \
        case 16:                                                                                   \
            EACH_ROW(RULE, REAL, SUFFIX, 16) break;                                                \
        case 32:                                                                                   \
            EACH_ROW(RULE, REAL, SUFFIX, 32) break;                                                \
        case 64:                                                                                   \
            EACH_ROW(RULE, REAL, SUFFIX, 64) break;                                                \
        default:                                                                                   \
            EACH_ROW(RULE, REAL, SUFFIX, update->columns)                                          \
        }                                                                                          \
    }

UPDATE_ROWS(adagrad, float, f32)
UPDATE_ROWS(adagrad, double, f64)
UPDATE_ROWS(adam, float, f32)
UPDATE_ROWS(adam, double, f64)
UPDATE_ROWS(ftrl, float, f32)
UPDATE_ROWS(ftrl, double, f64)

/* Update distinct rows, whose numbers have been checked. */
static void update_rows(Rule rule, size_t number, const Update *update) {
    static void (*const functions[RULES][2])(const Update *) = {
        {adagrad_rows_f32, adagrad_rows_f64},
        {adam_rows_f32, adam_rows_f64},
        {ftrl_rows_f32, ftrl_rows_f64},
    };
    functions[rule][number == 8](update);
}

#endif
