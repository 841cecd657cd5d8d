/* The version of glibc's functions that a module requires.
 *
 * By default a module requires the newest version of every function of the build system, and does
 * not load on older systems, although the first version does the same. Wheels must run on both.
 */
#ifndef FLEETX_GLIBC_H
#define FLEETX_GLIBC_H

#include <features.h>

#if defined(__GLIBC__) && defined(__x86_64__)
#define LOADS_ON_OLDER_SYSTEMS(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
#define LOADS_ON_OLDER_SYSTEMS(name) __asm__(".symver " #name "," #name "@GLIBC_2.17");
#else
#define LOADS_ON_OLDER_SYSTEMS(name)
#endif

#endif
