/** Names the media types in which servers and clients of the API exchange bodies. */

/** The default of requests and responses. */
export const JSON_TYPE = 'application/json';
/** Accepted for bodies, and sent where a client asks for it. */
export const YAML_TYPE = 'application/yaml';
/** The envelope of kube-apiserver, which begins with `k8s` and a zero byte. Only built-in types have it. */
export const PROTOBUF_TYPE = 'application/vnd.kubernetes.protobuf';
/** The type of plain responses, such as health checks, logs and errors outside of the API. */
export const TEXT_TYPE = 'text/plain; charset=utf-8';
