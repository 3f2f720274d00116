// Renders a template of Ollama's with the fields and functions that Ollama gives it. Reads {"template": ..., "data": ...}.
package main

import (
	"encoding/json"
	"os"
	"text/template"
)

func main() {
	var given struct {
		Template string
		Data     map[string]any
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		panic(err)
	}
	written := func(value any) string {
		text, _ := json.Marshal(value)
		return string(text)
	}
	made := template.Must(template.New("").Option("missingkey=zero").Funcs(template.FuncMap{"json": written}).Parse(given.Template))
	if err := made.Execute(os.Stdout, given.Data); err != nil {
		panic(err)
	}
}
