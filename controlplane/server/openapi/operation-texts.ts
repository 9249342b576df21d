/** Holds parts of the descriptions of operations, as kube-apiserver writes them. */

/** Returns the article of a kind, with a space before it. Kinds in the plural have none. */
export function article(kind: string): string {
  if (kind.endsWith('s') && !kind.endsWith('ss')) return '';
  return /^[aeiou]/i.test(kind) ? ' an' : ' a';
}

/** Returns the description of a deprecated watch path, of one object or of a list. */
export function watchText(kind: string, action: 'watch' | 'watchlist'): string {
  const instead = "deprecated: use the 'watch' parameter with a list operation instead";
  return action === 'watch'
    ? `watch changes to an object of kind ${kind}. ${instead}, filtered to a single item with the 'fieldSelector' parameter.`
    : `watch individual changes to a list of ${kind}. ${instead}.`;
}
