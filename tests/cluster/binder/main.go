// Command binder will follow.
package main

func main() {}
