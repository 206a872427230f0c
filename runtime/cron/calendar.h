/* The Gregorian calendar in days since 1970-01-01: leap years, the lengths of months, which year a day is in.
 * It knows no time zones (zone.h) and reads no clock.
 * Used by cron.c and zone.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline bool calendar_is_leap(int64_t year)
{
	return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* month: 1 to 12 */
static inline int calendar_month_days(int64_t year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

	return days[month - 1] + (month == 2 && calendar_is_leap(year));
}

/* The first day of a month (1 to 12). After "days_from_civil" of H. Hinnant's date algorithms (the formula is his). */
static inline int64_t calendar_days(int64_t year, int month)
{
	year -= month <= 2;
	int64_t era = (year >= 0 ? year : year - 399) / 400;
	int64_t yoe = year - era * 400, doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5;

	return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static inline int64_t calendar_year(int64_t days)
{
	int64_t year = 1970 + days * 400 / 146097;

	while (calendar_days(year, 1) > days)
		year--;
	while (calendar_days(year + 1, 1) <= days)
		year++;
	return year;
}

/* 0: Sunday. 1970-01-01 was a Thursday. */
static inline int calendar_weekday(int64_t days)
{
	return (int)(((days + 4) % 7 + 7) % 7);
}
