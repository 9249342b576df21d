/** Orders API versions. */

/** Orders stable before beta before alpha, and higher before lower numbers. Other names follow alphabetically. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [rankOf(a), rankOf(b)];
  if (left === undefined || right === undefined) {
    if (left === undefined && right === undefined) return a < b ? -1 : a > b ? 1 : 0;
    return left === undefined ? 1 : -1;
  }
  for (let index = 0; index < left.length; index += 1) {
    const difference = (right[index] ?? 0) - (left[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

function rankOf(version: string): number[] | undefined {
  const match = /^v(\d+)(?:(alpha|beta)(\d+))?$/.exec(version);
  if (match === null) return undefined;
  const stability = match[2] === undefined ? 2 : match[2] === 'beta' ? 1 : 0;
  return [stability, Number(match[1]), Number(match[3] ?? 0)];
}
