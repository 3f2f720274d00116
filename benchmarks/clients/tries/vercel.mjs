// Vercel AI SDK: the providers openai (responses and chat completions), openai-compatible and anthropic.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai'
import { z } from 'zod'

const [url, key, model, ...words] = process.argv.slice(2)
const calls = words.includes('calls')
const openai = createOpenAI({ baseURL: url, apiKey: key })
const models = [
  openai(model),
  openai.chat(model),
  createOpenAICompatible({ name: 'own', baseURL: url, apiKey: key, supportsStructuredOutputs: true })(model),
  createAnthropic({ baseURL: url, apiKey: key })(model),
]
const base = { prompt: 'Say hello.', maxOutputTokens: 200, maxRetries: 0 }
const check = (right, what) => {
  if (!right) throw new Error(what)
}
const weather = (asked) =>
  tool({
    description: 'The weather.',
    inputSchema: z.object({ city: z.enum(['Oslo', 'Bergen']) }),
    execute: ({ city }) => {
      asked.push(city)
      return 'dry'
    },
  })

const tries = {
  async chat(model) {
    check((await generateText({ ...base, model })).text, 'nothing was said')
  },
  async stream(model) {
    const parts = []
    const onError = ({ error }) => {
      throw error
    }
    for await (const part of streamText({ ...base, model, onError }).textStream) parts.push(part)
    check(parts.length > 1, `${parts.length} parts`)
  },
  async tools(model) {
    const asked = []
    const given = { ...base, model, prompt: 'call weather {"city": "Oslo"}', tools: { weather: weather(asked) } }
    const { text } = await generateText({ ...given, stopWhen: stepCountIs(3) })
    check(text, 'nothing was said')
    check(!calls || asked.join() === 'Oslo', `the tool was asked for ${asked}`)
  },
  async forced(model) {
    for (const toolChoice of ['required', { type: 'tool', toolName: 'weather' }]) {
      const { toolCalls } = await generateText({ ...base, model, tools: { weather: weather([]) }, toolChoice })
      check(['Oslo', 'Bergen'].includes(toolCalls[0]?.input.city), `the call does not fit: ${JSON.stringify(toolCalls)}`)
    }
  },
  async structured(model) {
    const { object } = await generateObject({ ...base, model, schema: z.object({ sky: z.enum(['dry', 'wet']) }) })
    check(['dry', 'wet'].includes(object.sky), 'the answer does not fit')
  },
}

for (const [name, one] of Object.entries(tries)) {
  try {
    for (const model of models) await one(model)
    console.log(JSON.stringify({ try: name, ok: true }))
  } catch (error) {
    const why = `${error.name}: ${error.message} ${error.responseBody ?? ''}`.slice(0, 400)
    console.log(JSON.stringify({ try: name, ok: false, why }))
  }
}
