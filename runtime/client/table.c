#include "client/table.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static size_t table_columns(const struct table *t)
{
	size_t n = 0;

	do
		n++;
	while (t->titles[n]);
	return n;
}

void table_add(struct table *t, const char *text)
{
	struct buf b = { 0 };

	buf_plain(&b, *text ? text : "-");
	t->cell = mem_resize(t->cell, (t->cells + 1) * sizeof *t->cell);
	t->cell[t->cells++] = b.data;
}

/* In characters, as far as those of UTF-8 are one column wide. */
static size_t width_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

static void put_row(struct buf *out, const char *const *cell, const size_t *width, size_t columns)
{
	for (size_t c = 0; c < columns; c++) {
		buf_adds(out, cell[c]);
		if (c < columns - 1)
			buf_printf(out, "%*s", (int)(width[c] - width_of(cell[c])) + 2, "");
	}
	buf_adds(out, "\n");
}

void table_print(struct buf *out, const struct table *t)
{
	size_t columns = table_columns(t), width[TABLE_COLUMNS] = { 0 };

	for (size_t c = 0; c < columns; c++)
		width[c] = width_of(t->titles[c]);
	for (size_t i = 0; i + columns <= t->cells; i += columns)
		for (size_t c = 0; c < columns; c++) {
			size_t n = width_of(t->cell[i + c]);
			width[c] = n > width[c] ? n : width[c];
		}
	put_row(out, t->titles, width, columns);
	for (size_t i = 0; i + columns <= t->cells; i += columns)
		put_row(out, (const char *const *)t->cell + i, width, columns);
}

void table_fini(struct table *t)
{
	for (size_t i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	t->cell = NULL;
	t->cells = 0;
}
