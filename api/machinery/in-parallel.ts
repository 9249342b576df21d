/**
 * Runs the work for each item, for at most `width` of them at the same time. Resolves to the results in the order of the items.
 * Rejects with the first error; work that has begun goes on.
 */
export async function inParallel<T, R>(
  items: readonly T[],
  width: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const waiting = items.entries();
  const takeTurns = async (): Promise<void> => {
    for (const [at, item] of waiting) results[at] = await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, takeTurns));
  return results;
}
