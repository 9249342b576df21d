/** Lists the words that cannot be identifiers in CEL. The schemas of custom resources escape members with such names. */

/** Keywords of the grammar, which cannot be identifiers. */
export const KEYWORDS: ReadonlySet<string> = new Set(['true', 'false', 'null', 'in']);
/** Words of other languages that CEL reserves. They cannot be identifiers either. */
export const RESERVED_WORDS: ReadonlySet<string> = new Set(
  'as break const continue else for function if import let loop package namespace return var void while'.split(' '),
);
