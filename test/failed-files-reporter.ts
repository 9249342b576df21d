/** A reporter of node:test that prints the path of each file with a failed test, one path per line. */
interface TestEvent {
  readonly type: string;
  readonly data: { readonly file?: string };
}

export default async function* failedFiles(source: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const seen = new Set<string>();
  for await (const event of source) {
    const { file } = event.data;
    if (event.type !== 'test:fail' || file === undefined || seen.has(file)) continue;
    seen.add(file);
    yield `${file}\n`;
  }
}
