/* Which version of a function of glibc a module asks for.
 *
 * A module built on a system of today asks for the newest version of every function, and then does
 * not load on older systems, though the first version does the same. Wheels are for both.
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
