/**
 * Provides `node:http` without the cost of importing it: an import reads every export once, and one of them is a getter that
 * loads a whole fetch client. Code that sends or serves plain HTTP imports this file, and imports types from `node:http`
 * itself.
 */

export const { Agent, createServer, METHODS, request, ServerResponse } = process.getBuiltinModule('node:http');
/** An agent of `node:http`. */
export type Agent = InstanceType<typeof Agent>;
