/** Formats the tables that commands print. */
import { printable } from '../../api/meta/quote.ts';

/**
 * Formats text in columns, as kubectl prints it: three spaces between columns, none at the end of a line. Users of the cluster
 * write some of the cells, so control characters are escaped.
 */
export function formatTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows].map((row) => row.map((cell) => printable(cell).replaceAll('\n', '\\n')));
  const widths = header.map((_cell, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('   ')
          .trimEnd()}\n`,
    )
    .join('');
}
