/** Parses the clauses of an `Accept` header, best first, for documents with media types other than those of objects. */

/** One clause, without its quality. */
export interface AcceptClause {
  /** The media type in lower case. */
  readonly type: string;
  readonly params: ReadonlyMap<string, string>;
}

/** An absent or empty header accepts everything. Clauses of the same quality stay in their order. */
export function acceptClauses(accept: string | undefined): AcceptClause[] {
  if (accept === undefined || accept.trim() === '') return [{ type: '*/*', params: new Map() }];
  const clauses = accept.split(',').flatMap((part) => {
    const [type = '', ...rest] = part.split(';').map((piece) => piece.trim());
    if (type === '') return [];
    const params = new Map<string, string>();
    for (const param of rest) {
      const [key = '', value = ''] = param.split('=', 2);
      params.set(key.trim(), value.trim());
    }
    const quality = Number.parseFloat(params.get('q') ?? '1');
    return [{ type: type.toLowerCase(), params, quality: Number.isNaN(quality) ? 0 : quality }];
  });
  return clauses.filter(({ quality }) => quality > 0).sort((a, b) => b.quality - a.quality);
}
